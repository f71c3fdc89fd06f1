python main_supcon.py --dataset path --data_folder /data/images --batch_size 64 --cosine --temp 0.07
