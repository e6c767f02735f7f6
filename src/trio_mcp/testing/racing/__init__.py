"""`race`: what can happen around one exchange, in every order."""
