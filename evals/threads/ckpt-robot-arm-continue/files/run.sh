lerobot-train --config_path=/data/outputs/act/checkpoints/000002/pretrained_model/ --resume=true
