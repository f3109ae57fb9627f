"""Stacks and lists whose next state is a mixture of what each action would make (Joulin & Mikolov 2015)."""
