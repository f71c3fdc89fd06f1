"""The views beside the conversation, one file each."""
