current_dataset = 'sms_spam_phishing_dataset_v2.4_combined.csv'
test_size = 0.2
random_state = 42
model_name = 'bert-base-multilingual-cased'
learning_rate = 2e-5
num_epochs = 6
batch_size = 32
