"""Programs whose records own their variables: prices are released, and each person gets their own share.

``form`` : one person's problem; ``read`` : from CVXPY; ``respond`` : a person's answer to prices; ``model`` : the
family's model; ``noisy_prices``, ``even_shares`` : its mechanisms; ``release`` : who is handed what.
"""
