def forward(self, x, token_mask, cp_mesh):
    scores = F.linear(x, self.weight)
    weights, indices = torch.topk(scores.softmax(dim=-1, dtype=torch.float32), k=self.topk, dim=-1)
    if self.norm_topk_prob:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    aux_loss = None
    if self.aux_loss_coeff > 0 and self.training:
        expert_load = self._compute_expert_load(indices, token_mask)
        aux_loss = self._compute_aux_loss(scores, expert_load, token_mask, cp_mesh)
        MoEAuxLossAutoScaler.apply(weights, aux_loss * weights.shape[0])
    return weights.type_as(x), indices, aux_loss
