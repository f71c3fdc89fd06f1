#!/bin/bash
#SBATCH -A my_account
#SBATCH -p batch
#SBATCH -N 2
#SBATCH -t 04:00:00
#SBATCH --gpus-per-node=8
#SBATCH --export=ALL

MODEL="/ws/llama2-7b.nemo"
TRAIN_DS="[/ws/train.jsonl]"
TP_SIZE=4
CONCAT_SAMPLING_PROBS="[1]"

read -r -d '' cmd <<XXEOF
echo "*******STARTING********" \
&& export HYDRA_FULL_ERROR=1 \
&& python -u /opt/NeMo/examples/nlp/language_modeling/tuning/megatron_gpt_finetuning.py \
   trainer.precision=bf16 \
   trainer.devices=8 \
   trainer.num_nodes=2 \
   model.optim.lr=5e-6 \
   model.tensor_model_parallel_size=${TP_SIZE} \
   model.micro_batch_size=1
XXEOF

srun -o log-%j.out --container-image=nvcr.io/nvidia/nemo:24.05 bash -c "${cmd}"
