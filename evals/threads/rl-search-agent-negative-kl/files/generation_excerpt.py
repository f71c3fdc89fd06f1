def _update_right_side(self, right_side, cur_responses, next_obs_ids=None):
    """Append what the policy wrote and what the search returned."""
    if next_obs_ids is not None:
        responses = self.tensor_fn.concatenate_with_padding(
            [right_side['responses'], cur_responses, next_obs_ids], pad_to_left=False)
    else:
        responses = self.tensor_fn.concatenate_with_padding(
            [right_side['responses'], cur_responses], pad_to_left=False)
    effective_len = self.tensor_fn.create_attention_mask(responses).sum(dim=1).max()
    max_len = min(self.config.max_prompt_length, effective_len)
    return {'responses': responses[:, :max_len]}
