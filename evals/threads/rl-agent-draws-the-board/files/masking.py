def create_loss_mask(batch, tokenizer, state_start, state_end):
    """Tokens between <start-state> and <end-state> come from the game."""
    response_length = batch["responses"].shape[-1]
    response_mask = batch["attention_mask"][:, -response_length:]
    state_mask = torch.zeros_like(response_mask)
    for row, ids in enumerate(batch["responses"]):
        inside = False
        for col, token in enumerate(ids.tolist()):
            if token == state_start:
                inside = True
            if inside:
                state_mask[row, col] = 1
            if token == state_end:
                inside = False
    loss_mask = state_mask * response_mask
    batch["loss_mask"] = loss_mask
    return batch
