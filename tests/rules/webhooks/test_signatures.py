"""The signature of a delivery, against vectors worked out with another tool (openssl dgst -sha256 -hmac)."""

from holdfast.rules.webhooks.signatures import signature

BODY = b'{"event":"job.run.completed"}'
TOP = "54614e112df453fdf1842b3fe404e489b01a293f7aece52676de83c2fafc63cb"
NEW = "e820d1a44b06d97667a6f08e4eb3f9ba01213441fe62cbcf411d8329e8bb6e23"


def test_a_signature_is_the_one_that_openssl_gives():
    assert signature(["topsecret"], BODY, 1_767_225_600) == f"t=1767225600,v1={TOP}"


def test_while_secrets_are_changed_there_is_one_of_each_in_their_order():
    both = signature(["newsecret", "topsecret"], BODY, 1_767_225_600)
    assert both == f"t=1767225600,v1={NEW},v1={TOP}"


def test_the_time_and_every_byte_of_the_body_are_signed():
    one = signature(["topsecret"], BODY, 1_767_225_600)
    assert one.split("v1=")[1] != signature(["topsecret"], BODY, 1_767_225_601).split("v1=")[1]
    assert one != signature(["topsecret"], BODY + b" ", 1_767_225_600)
