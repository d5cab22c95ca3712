"""What may read what, by how often results count (``core.delivery``)."""

from __future__ import annotations

from holdfast.core.settings import Delivery
from holdfast.deployment import Deployment, DeploymentError
from holdfast.plans.plan import Plan


def check_delivery(deployment: Deployment, plan: Plan) -> None:
    """DeploymentError if a fragment promises more than what it reads is worth."""
    most = Delivery.AT_MOST_ONCE
    lossy = {
        stream: name
        for stream, name in plan.made_by.items()
        if deployment.fragments[name].delivery is most
    }
    for name, fragment in plan.fragments.items():
        before = [lossy[stream] for stream in fragment.inputs if stream in lossy]
        if before and deployment.fragments[name].delivery is not most:
            raise DeploymentError(
                f"{deployment.path.name}: fragments.{name}.delivery: it reads what {before[0]} "
                f"delivers at most once, of which nothing is kept to compute again from; write "
                f'delivery = "{most.value}" here, too'
            )
