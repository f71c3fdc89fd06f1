docker run --gpus all -it -v $(pwd):/workspace registry.local/protenix:v0.0.1 /bin/bash
