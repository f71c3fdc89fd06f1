def encode(self, messages):
    rendered = self.processor.apply_chat_template(messages, tokenize=False)
    input_ids = self.processor.tokenizer(rendered)["input_ids"]
    labels = [-100] * len(input_ids)
    for message in messages:
        if message["role"] == "assistant":
            answer = self.processor.tokenizer(message["content"] + "<|im_end|>")["input_ids"]
            start = find(input_ids, answer[1:])
            labels[start - 1 : start - 1 + len(answer)] = answer
    return input_ids, labels
