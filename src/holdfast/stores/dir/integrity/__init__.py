"""Files against what is known of them: checked, repaired, set aside."""
