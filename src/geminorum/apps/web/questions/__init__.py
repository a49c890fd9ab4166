"""Questions of agents, as the pages show and answer them."""
