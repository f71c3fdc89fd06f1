"""What this team's jobs failed of before, and what they really were."""
