"""What people write workflows with: definitions, steps, what code may call."""
