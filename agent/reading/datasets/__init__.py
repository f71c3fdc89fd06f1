"""What a run was fed and what it was scored on, record by record, in bounded memory."""
