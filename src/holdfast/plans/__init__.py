"""What a deployment comes to: the network without its operators, who talks to whom, and where."""
