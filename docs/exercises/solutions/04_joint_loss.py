def kl_divergence(old_logits, logits):
    return (old_logits.exp() * (old_logits - logits)).sum(-1).mean()


def auxiliary_loss(logits, values, aux_values, old_logits, returns, beta_clone):
    L_aux = 0.5 * (aux_values - returns).square().mean()
    L_value = 0.5 * (values - returns).square().mean()
    return L_aux + beta_clone * kl_divergence(old_logits, logits) + L_value
