"""``holdfast demo``: monitoring that goes on while a region is cut off and a replica is killed.

run.py       the deployment, and what happens to it
network.py   the query, readings.py what goes in
history.py   what came out, and when; view.py and picture.py show it
batch.py     the same query as one batch job, to compare with
"""
