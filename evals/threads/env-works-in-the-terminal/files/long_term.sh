export CUDA_VISIBLE_DEVICES=2
model_name=TimesNet
python -u run.py --task_name long_term_forecast --is_training 1 --root_path ./dataset/ETT/ --data_path ETTh1.csv --model $model_name --seq_len 96 --pred_len 96 --batch_size 32 --learning_rate 0.0001
