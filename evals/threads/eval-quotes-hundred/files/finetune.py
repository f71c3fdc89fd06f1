import gpt_2_simple as gpt2

model_name = "124M"
file_name = "/kaggle/input/quotes-500k/train.txt"
sess = gpt2.start_tf_sess()
gpt2.finetune(sess,
              file_name,
              model_name=model_name,
              steps=100)   # steps is max number of training steps
gpt2.generate(sess)
