"""What a sweep found: its best recipe, exported and ready to train again."""
