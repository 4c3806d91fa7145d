"""How long whole trainings take, compared with public logs of trainings."""
