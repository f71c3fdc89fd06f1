import torch.distributed.checkpoint as dcp
from flashoptim import FlashAdamW
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

optimizer = FlashAdamW(model.parameters(), lr=2e-5, quantize=True, master_weight_bits=24)
train(model, optimizer, batches[:20])
model_sd, optim_sd = get_state_dict(model, optimizer)
dcp.save({"model": model_sd, "optim": optim_sd}, checkpoint_id=path)

fresh, fresh_opt = build()
model_sd, optim_sd = get_state_dict(fresh, fresh_opt)
dcp.load({"model": model_sd, "optim": optim_sd}, checkpoint_id=path)
set_state_dict(fresh, fresh_opt, model_state_dict=model_sd, optim_state_dict=optim_sd)
