# What holds on the shared office machine: every process has 4 GB at most.
ulimit -v 4000000
export TOKENIZERS_PARALLELISM=false
