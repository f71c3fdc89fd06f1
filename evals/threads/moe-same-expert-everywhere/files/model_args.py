@dataclass
class ModelArgs:
    vocab_size: int = 102400
    hidden_size: int = 2048
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    num_experts_per_tok: int = 1
    topk_method: str = "greedy"
    scoring_func: str = "softmax"
    aux_loss_alpha: float = 0.0
    seq_aux: bool = True
