set -x

read -r -d '' training_commands <<EOS
openrlhf.cli.train_sft \
   --max_len 2048 \
   --dataset Open-Orca/OpenOrca \
   --train_batch_size 256 \
   --micro_train_batch_size 2 \
   --pretrain meta-llama/Meta-Llama-3-8B \
   --save_path ./checkpoint/llama3-8b-sft \
   --zero_stage 2 \
   --max_epochs 1 \
   --packing_samples \
   --bf16 \
   --learning_rate 5e-6 \
   --gradient_checkpointing
EOS

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
