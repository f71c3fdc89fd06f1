entropy_loss = verl_F.masked_mean(entropy, response_mask)
policy_loss = pg_loss - entropy_loss * entropy_coeff

if self.config.use_kl_loss:
    ref_log_prob = data['ref_log_prob']
    kld = core_algos.kl_penalty(logprob=log_prob, ref_logprob=ref_log_prob,
                                kl_penalty=self.config.kl_loss_type)
    kl_loss = masked_mean(kld, response_mask)

    policy_loss = policy_loss - kl_loss * self.config.kl_loss_coef
    metrics['actor/kl_loss'] = kl_loss.detach().item()
    metrics['actor/kl_coef'] = self.config.kl_loss_coef

loss = policy_loss / self.gradient_accumulation
loss.backward()
