"""moto's server with what it lacks: fleets that honour priorities, strategies, capacity and client tokens, states that
take time, lists that lag behind, Reserved Instances and capacity reservations, throttling, credentials that expire, a clock of its own, and a record of every request.

    launcher.py PORT

POST /_testbed/control takes a JSON object of the settings below; GET /_testbed/requests gives what was asked so far,
and GET /_testbed/count how many requests that were, and how many launches.
"""

import copy
import datetime
import io
import json
import os
import random
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import instances as moto_instances
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.responses.fleets import Fleets
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

LOCK = threading.RLock()
SETTINGS = {
    # Offerings that cannot be had: TYPE:CAPACITY-TYPE:ZONE, with * for any.
    "short": [],
    # List prices by type, for strategies that go by them.
    "prices": {},
    # Spot prices by TYPE:ZONE; of others there is no history.
    "spot": {},
    # Reserved Instances and capacity reservations, in the words of EC2.
    "reserved": [],
    "capacity": [],
    # How many entries of offerings and prices come with one request at most.
    "page": 1000,
    # Seconds that an instance takes to start, to stop and to end.
    "boot": 0.0,
    "stop": 0.0,
    "end": 0.0,
    # Seconds for which lists do not show a new instance.
    "hidden": 0.0,
    # How many of the next requests of an action are refused with RequestLimitExceeded.
    "throttle": {},
    # The share of requests that fail before anything happens, and of those whose answer is lost.
    "fail": 0.0,
    "lose": 0.0,
    # Access keys that have expired.
    "expired": [],
    # How many seconds this server's clock is ahead.
    "skew": 0,
    # Public parameters of the Systems Manager, which nobody can make.
    "parameters": {},
    # Secrets of access keys; signatures of others are not looked at.
    "secrets": {"testing": "testing"},
}

_owed = {"answers": 0.0}


def is_due(share):
    """Whether this answer is one of the share that is lost: every second one for a half, not half of them by luck, so
    that a caller who asks a few times is always heard."""
    _owed["answers"] += share
    if _owed["answers"] < 1.0:
        return False
    _owed["answers"] -= 1.0
    return True

REQUESTS = []
TOKENS = {}
CALLS = os.environ.get("VENEER_AWS_CALLS")
NOTED = set()
# Whether the request that this thread serves sees lists that lag behind: those of the tests' own set-up do not.
ASKING = threading.local()


class Refusal(EC2ClientError):
    def __init__(self, code, message):
        super().__init__(code, message)


# --- states that take time --------------------------------------------------------------------------------------------


def move(instance, name, code, target, seconds):
    """Gives an instance a state on the way to another."""
    if seconds <= 0:
        instance._state.name, instance._state.code = target
        instance.testbed_next = None
        return
    instance._state.name, instance._state.code = name, code
    instance.testbed_next = (time.monotonic() + seconds, target)


def settle(backend):
    for reservation in list(backend.reservations.values()):
        for instance in reservation.instances:
            due = getattr(instance, "testbed_next", None)
            if due and time.monotonic() >= due[0]:
                instance._state.name, instance._state.code = due[1]
                instance.testbed_next = None


original_terminate = moto_instances.Instance.terminate
original_stop = moto_instances.Instance.stop
original_start = moto_instances.Instance.start


def terminate(self):
    if self._state.name in ("terminated", "shutting-down"):
        return copy.copy(self._state)
    before = original_terminate(self)
    move(self, "shutting-down", 32, ("terminated", 48), SETTINGS["end"])
    return before


def stop(self):
    if self._state.name not in ("running", "stopping", "stopped"):
        raise Refusal("IncorrectInstanceState", f"The instance '{self.id}' is not in a state from which it can be stopped.")
    before = original_stop(self)
    move(self, "stopping", 64, ("stopped", 80), SETTINGS["stop"])
    return before


def start(self):
    if self._state.name not in ("stopped", "pending", "running"):
        raise Refusal("IncorrectInstanceState", f"The instance '{self.id}' is not in a state from which it can be started.")
    if is_short(self.instance_type, "on-demand", self._placement.zone):
        raise Refusal("InsufficientInstanceCapacity", "There is no capacity for the instance at the moment.")
    before = original_start(self)
    move(self, "pending", 0, ("running", 16), SETTINGS["boot"])
    return before


moto_instances.Instance.terminate = terminate
moto_instances.Instance.stop = stop
moto_instances.Instance.start = start

original_stop_instances = InstanceResponse.stop_instances


def stop_instances(self):
    hibernate = self._get_param("Hibernate")
    if hibernate in (True, "true"):
        for instance in self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])):
            if not (instance.hibernation_options or {}).get("Configured"):
                raise Refusal("UnsupportedHibernationConfiguration", f"The instance '{instance.id}' is not configured for hibernation.")
    answer = original_stop_instances(self)
    if hibernate in (True, "true"):
        for instance in self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])):
            instance.state_reason = moto_instances.StateReason(
                "Client.UserInitiatedHibernate: User initiated hibernate", "Client.UserInitiatedHibernate"
            )
    return answer


InstanceResponse.stop_instances = stop_instances

original_terminate_instances = moto_instances.InstanceBackend.terminate_instances


def terminate_instances(self, instance_ids):
    """EC2 ends none of a request's instances (in a zone) where one is protected; moto would end those before it."""
    for instance in self.get_multi_instances_by_id(instance_ids):
        if instance.disable_api_termination in (True, "true"):
            raise moto_instances.OperationNotPermitted4(instance.id)
    return original_terminate_instances(self, instance_ids)


moto_instances.InstanceBackend.terminate_instances = terminate_instances

original_modify = InstanceResponse.modify_instance_attribute


def modify_instance_attribute(self):
    if self._get_param("InstanceType.Value") is None:
        return original_modify(self)
    for instance in self.ec2_backend.get_multi_instances_by_id([self._get_param("InstanceId")]):
        if instance._state.name != "stopped":
            raise Refusal("IncorrectInstanceState", f"The instance '{instance.id}' is not in the 'stopped' state.")
    return original_modify(self)


InstanceResponse.modify_instance_attribute = modify_instance_attribute

# --- lists that lag behind --------------------------------------------------------------------------------------------

original_all = moto_instances.InstanceBackend.all_reservations


def all_reservations(self, filters=None):
    settle(self)
    if not getattr(ASKING, "lags", False):
        return original_all(self, filters)
    shown = []
    for reservation in original_all(self, filters):
        visible = [one for one in reservation.instances if time.monotonic() - getattr(one, "testbed_born", 0) >= SETTINGS["hidden"]]
        if visible:
            seen = copy.copy(reservation)
            seen.instances = visible
            shown.append(seen)
    return shown


moto_instances.InstanceBackend.all_reservations = all_reservations

# --- fleets -----------------------------------------------------------------------------------------------------------


def is_short(instance_type, capacity_type, zone):
    wanted = (instance_type, capacity_type, zone)
    for pattern in SETTINGS["short"]:
        parts = (pattern.split(":") + ["*", "*"])[:3]
        if all(part in ("*", value) for part, value in zip(parts, wanted)):
            return True
    return False


def tags_of(specifications, kind):
    tags = {}
    for one in specifications or []:
        if one.get("ResourceType") == kind:
            tags.update({tag["Key"]: tag.get("Value", "") for tag in one.get("Tags", [])})
    return tags


def create_fleet(self):
    configs = self._get_param("LaunchTemplateConfigs", [])
    target = self._get_param("TargetCapacitySpecification", {})
    capacity_type = target.get("DefaultTargetCapacityType", "on-demand")
    options = self._get_param("SpotOptions" if capacity_type == "spot" else "OnDemandOptions", {}) or {}
    strategy = options.get("AllocationStrategy", "lowest-price")
    specifications = self._get_param("TagSpecifications", [])
    token = self._get_param("ClientToken")
    said = {key: value for key, value in self.data.items() if key != "ClientToken"}
    with LOCK:
        if token in TOKENS:
            before, answer = TOKENS[token]
            if before != said:
                raise Refusal("IdempotentParameterMismatch", "The request uses the same client token as a previous, but non-identical request.")
            return ActionResult(answer)
        candidates = []
        for config in configs:
            named = config["LaunchTemplateSpecification"]
            template = self.ec2_backend.get_launch_template_by_name(name=named["LaunchTemplateName"])
            for override in config.get("Overrides") or [{}]:
                candidates.append((named, template, override))
        if strategy in ("prioritized", "capacity-optimized-prioritized"):
            candidates.sort(key=lambda one: float(one[2].get("Priority", 0)))
        elif strategy == "lowest-price" and SETTINGS["prices"]:
            candidates.sort(key=lambda one: SETTINGS["prices"].get(one[2].get("InstanceType"), 1e9))
        launched, errors = [], []
        for named, template, override in candidates:
            place = {"LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": named, "Overrides": override}}
            if is_short(override["InstanceType"], capacity_type, override.get("AvailabilityZone", "")):
                errors.append({
                    "ErrorCode": "InsufficientInstanceCapacity" if capacity_type != "spot" else "UnfulfillableCapacity",
                    "ErrorMessage": "There is no capacity at the moment.", "Lifecycle": capacity_type, **place,
                })
                continue
            instance = launch(self, template, override, capacity_type, specifications)
            launched.append({"Lifecycle": capacity_type, "InstanceIds": [instance.id], "InstanceType": instance.instance_type, **place})
            break
        answer = {"FleetId": "fleet-" + "%032x" % random.getrandbits(128), "Instances": launched, "Errors": errors}
        if token:
            TOKENS[token] = (said, answer)
        return ActionResult(answer)


def launch(response, template, override, capacity_type, specifications):
    data = template.get_version(template.latest_version_number).data
    interfaces = data.get("NetworkInterfaces") or [{}]
    groups = interfaces[0].get("Groups") or data.get("SecurityGroupIds") or []
    reservation = response.ec2_backend.run_instances(
        image_id=override.get("ImageId") or data.get("ImageId"),
        count=1,
        user_data=data.get("UserData"),
        security_group_names=[],
        security_group_ids=list(groups),
        instance_type=override["InstanceType"],
        is_instance_type_default=False,
        region_name=response.region,
        placement=override.get("AvailabilityZone"),
        subnet_id=override.get("SubnetId"),
        hibernation_options=data.get("HibernationOptions") or {},
        metadata_options=data.get("MetadataOptions") or {},
        launch_template={"LaunchTemplateName": template.name, "Version": "$Latest"},
        tags={"instance": tags_of(specifications, "instance"), "volume": tags_of(specifications, "volume")},
        lifecycle="spot" if capacity_type == "spot" else None,
    )
    instance = reservation.instances[0]
    instance.testbed_born = time.monotonic()
    move(instance, "pending", 0, ("running", 16), SETTINGS["boot"])
    return instance


Fleets.create_fleet = create_fleet

# --- offerings and spot prices ----------------------------------------------------------------------------------------


def paged(self, key, entries):
    first = int(self._get_param("NextToken") or 0)
    after = first + min(int(self._get_param("MaxResults") or 1000), SETTINGS["page"])
    return ActionResult({key: entries[first:after], "NextToken": str(after) if after < len(entries) else None})


def describe_instance_type_offerings(self):
    found = self.ec2_backend.describe_instance_type_offerings(self._get_param("LocationType"), self._filters_from_querystring())
    return paged(self, "InstanceTypeOfferings", found)


def describe_spot_price_history(self):
    now = datetime.datetime.now(datetime.timezone.utc)
    history = []
    for place, price in SETTINGS["spot"].items():
        instance_type, zone = place.split(":")
        # The newest price is what counts, wherever it stands.
        for age, spot_price in ((60, price), (7200, price * 2)):
            history.append({
                "InstanceType": instance_type, "AvailabilityZone": zone, "SpotPrice": str(spot_price),
                "ProductDescription": "Linux/UNIX", "Timestamp": now - datetime.timedelta(seconds=age),
            })
    return paged(self, "SpotPriceHistory", history)


InstanceResponse.describe_instance_type_offerings = describe_instance_type_offerings
SpotInstances.describe_spot_price_history = describe_spot_price_history

# --- commitments ------------------------------------------------------------------------------------------------------


def timed(entry):
    """An entry with its times as times."""
    times = ("Start", "End", "StartDate", "EndDate", "CreateDate")
    return {key: datetime.datetime.fromisoformat(value) if key in times else value for key, value in entry.items()}


def in_state(self, entries):
    states = self._filters_from_querystring().get("state")
    return [timed(one) for one in entries if not states or one.get("State") in states]


def describe_reserved_instances(self):
    return ActionResult({"ReservedInstances": in_state(self, SETTINGS["reserved"])})


def describe_capacity_reservations(self):
    return paged(self, "CapacityReservations", in_state(self, SETTINGS["capacity"]))


EC2Response.describe_reserved_instances = describe_reserved_instances
EC2Response.describe_capacity_reservations = describe_capacity_reservations

# --- images -----------------------------------------------------------------------------------------------------------

original_register = AmisResponse.register_image


def register_image(self):
    answer = original_register(self)
    self.ec2_backend.amis[answer.result["ImageId"]].architecture = self._get_param("Architecture")
    return answer


AmisResponse.register_image = register_image

# --- the server -------------------------------------------------------------------------------------------------------


def xml_error(code, message, status):
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>0</RequestID></Response>"
    return status, "text/xml", body


def json_error(code, message, status):
    return status, "application/x-amz-json-1.0", json.dumps({"__type": code, "message": message})


def scope(environ):
    """Key, region, service, signed headers and signature of a request."""
    header = environ.get("HTTP_AUTHORIZATION", "")
    parts = dict(part.strip().split("=", 1) for part in header.replace("AWS4-HMAC-SHA256", "").split(",") if "=" in part)
    credential = (parts.get("Credential", "") + "////").split("/")
    return credential[0], credential[2], credential[3], parts.get("SignedHeaders", "").split(";"), parts.get("Signature", "")


def is_signed(environ, body):
    key, region, service, names, signature = scope(environ)
    secret = SETTINGS["secrets"].get(key)
    if secret is None:
        return True
    headers = {}
    for name in names:
        variable = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}.get(name, "HTTP_" + name.upper().replace("-", "_"))
        headers[name] = environ.get(variable, "")
    token = headers.get("x-amz-security-token")
    url = f"http://{environ.get('HTTP_HOST')}{environ.get('PATH_INFO')}"
    request = AWSRequest(method=environ["REQUEST_METHOD"], url=url, data=body, headers=headers)
    request.context["timestamp"] = environ.get("HTTP_X_AMZ_DATE", "")
    signer = SigV4Auth(Credentials(key, secret, token), service, region)
    return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request) == signature


def refusal(action, service, environ, body):
    error = xml_error if service in ("ec2", "iam") else json_error
    key = scope(environ)[0]
    if key in SETTINGS["expired"]:
        return error("RequestExpired" if service == "ec2" else "ExpiredTokenException", "Credentials have expired.", 400)
    sent = environ.get("HTTP_X_AMZ_DATE")
    if sent:
        sent = datetime.datetime.strptime(sent, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()
        if abs(sent - time.time() - SETTINGS["skew"]) > 300:
            return error("RequestExpired" if service == "ec2" else "InvalidSignatureException", "Signature expired.", 400)
    if not is_signed(environ, body):
        return error("SignatureDoesNotMatch", "The signature does not match.", 403)
    if SETTINGS["throttle"].get(action, 0) > 0:
        SETTINGS["throttle"][action] -= 1
        return error("RequestLimitExceeded" if service == "ec2" else "ThrottlingException", "Request limit exceeded.", 503)
    if random.random() < SETTINGS["fail"]:
        return error("InternalError", "An internal error has occurred.", 500)
    return None


def noted(service, action):
    """Notes for the whole run of tests which calls were made, where VENEER_AWS_CALLS names a folder."""
    if CALLS and (service, action) not in NOTED:
        NOTED.add((service, action))
        with open(os.path.join(CALLS, str(os.getpid())), "a") as file:
            file.write(f"{service}:{action}\n")


def application(moto):
    def serve(environ, start_response):
        def answer(status, kind, body):
            date = formatdate(time.time() + SETTINGS["skew"], usegmt=True)
            start_response(f"{status} x", [("Content-Type", kind), ("Date", date), ("Content-Length", str(len(body.encode())))])
            return [body.encode()]

        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ.get("PATH_INFO", "")
        if path == "/_testbed/ready":
            return answer(200, "text/plain", "ready")
        if path == "/_testbed/control":
            with LOCK:
                SETTINGS.update(json.loads(body))
            return answer(200, "text/plain", "ok")
        if path == "/_testbed/requests":
            with LOCK:
                return answer(200, "application/json", json.dumps(REQUESTS))
        if path == "/_testbed/count":
            with LOCK:
                return answer(200, "application/json", json.dumps([len(REQUESTS), len(TOKENS)]))
        if not environ.get("HTTP_AUTHORIZATION"):
            return moto(environ, start_response)
        _, _, service, _, _ = scope(environ)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        said = dict(urllib.parse.parse_qsl(body.decode())) if not target else json.loads(body or b"{}")
        # Savings Plans name the call in the path.
        action = target.rsplit(".", 1)[-1] or said.get("Action") or path.strip("/")
        # Requests of the tests' own set-up are not what is tested.
        is_ours = environ.get("HTTP_USER_AGENT", "") != "testbed"
        refused = None
        if is_ours:
            with LOCK:
                refused = refusal(action, service, environ, body)
                noted(service, action)
                entry = {"service": service, "action": action, "request": said, "refused": bool(refused), "bytes": len(body)}
                REQUESTS.append(entry)
            if refused:
                return answer(*refused)
        else:
            entry = {}
        if action == "GetParameter" and said.get("Name") in SETTINGS["parameters"]:
            value = {"Name": said["Name"], "Type": "String", "Version": 1, "Value": SETTINGS["parameters"][said["Name"]]}
            return answer(200, "application/x-amz-json-1.1", json.dumps({"Parameter": value}))
        state = {}

        def remember(status, headers, exc_info=None):
            state["status"], state["headers"] = status, headers
            return lambda data: None

        # Only lists lag: a launch knows what it has just made.
        ASKING.lags = is_ours and action == "DescribeInstances"
        chunks = b"".join(moto(environ, remember))
        entry["bytes"] = entry.get("bytes", 0) + len(chunks)
        if is_ours and is_due(SETTINGS["lose"]):
            entry["lost"] = True
            error = xml_error if service in ("ec2", "iam") else json_error
            return answer(*error("InternalError", "The answer was lost.", 500))
        start_response(state["status"], state["headers"])
        return [chunks]

    return serve


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def send_response(self, code, message=None):
        # Without a date, which answers bring themselves: it may be another one.
        self.send_response_only(code, message)

    def log(self, *arguments):
        pass


def main():
    ec2_backends  # Loaded before the first request, so that the first is not slow.
    moto = DomainDispatcherApplication(create_backend_app)
    moto.debug = True
    run_simple("127.0.0.1", int(sys.argv[1]), application(moto), threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    main()
