"""What this team's jobs failed of before: diagnoses by job, cause and node, and what they really were."""
