"""The screen of a conversation: what is asked, what is checked, what is answered."""
