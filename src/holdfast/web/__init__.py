"""``holdfast web``: a page on which one watches a deployment, and pulls its plugs.

looking.py   asks the nodes and the servers, once for all viewers; model.py what the page is told
journals.py  follows what the processes write; outputs.py reads the outputs
history.py   the last hour of it; watching.py puts all of it together and hub.py hands it out
sessions.py  who may look and who may operate; app.py the requests; serve.py the server
controls.py  replicas and failures on purpose; editing.py, building.py, toml_edit.py another network
             or knobs, resubmitting.py the same where a cluster runs it
flows.py     who reads from whom, who is worth what; servers.py, plane.py where servers are drawn
clusters.py  what a cluster says of itself and of what was submitted
static/      the page: plain modules, no library
"""
