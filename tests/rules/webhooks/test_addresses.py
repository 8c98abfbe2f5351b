"""Which addresses a webhook may have. Text and numbers only; nothing is resolved here."""

from ipaddress import ip_address

import pytest

from holdfast.errors import InvalidValue
from holdfast.rules.webhooks.addresses import check_target, is_public, parse_networks, parse_url

METADATA = [
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254./",
    "http://2852039166/",  # the same as one decimal number
    "http://0xa9fea9fe/",
    "http://0xA9.0xFE.0xA9.0xFE/",
    "http://0251.0376.0251.0376/",
    "http://025177524776/",
    "http://169.254.43518/",
    "http://169.16689662/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[fd00:ec2::254]/",
    "http://100.100.100.200/",
]
INSIDE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://x.localhost:8080/",
    "http://LOCALHOST./",
    "http://10.1.2.3/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://192.0.0.8/",
    "http://198.19.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[::127.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",  # Teredo
    "http://[2001:db8::1]/",
    "http://[64:ff9b:1::a00:1]/",
]
MALFORMED = [
    "",
    "example.com",
    "//example.com/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://example.com/",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "http://",
    "http:///path",
    "http://user:secret@example.com/",
    "http://user@example.com/",
    "http://@example.com/",
    "http://example.com\\@10.0.0.1/",
    "http://exam ple.com/",
    "http://example.com/\r\nX: y",
    "http://example.com/\tx",
    "http://example.com/ä",
    "http://exämple.com/",
    "http://example.com/#part",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:x/",
    "http://example.com:80:90/",
    "http://-example.com/",
    "http://a..b/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 130 + "com/",
    "http://[::1/",
    "http://[::1]x/",
    "http://[fe80::1%25eth0]/",
    "http://[v1.x]/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://example.com/" + "a" * 2000,
]


@pytest.mark.parametrize("url", METADATA + INSIDE + MALFORMED)
def test_what_is_no_public_address_is_refused_however_it_is_spelled(url):
    with pytest.raises(InvalidValue) as caught:
        check_target(url)
    assert caught.value.facts["field"] == "url"


def test_a_refusal_does_not_repeat_the_password_it_was_given():
    with pytest.raises(InvalidValue) as caught:
        check_target("https://user:hunter2@example.com/")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTPS://Example.COM.:443/A?b=c%20d", "example.com", 443, "/A?b=c%20d", "example.com"),
        ("http://example.com:8080?x", "example.com", 8080, "/?x", "example.com:8080"),
        ("http://a_b.example.com/", "a_b.example.com", 80, "/", "a_b.example.com"),
        ("http://xn--exmple-cua.com/", "xn--exmple-cua.com", 80, "/", "xn--exmple-cua.com"),
        ("http://8.8.8.8/", "8.8.8.8", 80, "/", "8.8.8.8"),
        ("https://[2606:4700:4700:0::1111]:8443/x", "2606:4700:4700::1111", 8443, "/x", "[2606:4700:4700::1111]:8443"),
        ("http://[64:ff9b::808:808]/", "64:ff9b::808:808", 80, "/", "[64:ff9b::808:808]"),
        ("http://1.example/", "1.example", 80, "/", "1.example"),
    ],
)
def test_a_public_url_is_taken_apart(url, host, port, path, header):
    target = check_target(url)
    assert (target.host, target.port, target.path, target.host_header) == (host, port, path, header)


@pytest.mark.parametrize(
    ("allowed", "address"),
    [
        ("127.0.0.0/8", "127.0.0.1"),
        ("127.0.0.0/8", "::ffff:127.0.0.1"),
        ("10.0.0.0/8", "64:ff9b::a00:1"),
        ("fd00::/8", "fd12::1"),
        ("fe80::/10", "fe80::1%eth0"),
        ("192.168.1.7", "192.168.1.7"),
    ],
)
def test_a_network_that_is_named_is_allowed_and_no_other(allowed, address):
    networks = parse_networks([allowed])
    assert is_public(ip_address(address), networks)
    assert not is_public(ip_address(address))
    assert not is_public(ip_address("172.16.0.1"), networks)


def test_allowing_a_network_does_not_allow_another_spelling_of_another_one():
    networks = parse_networks(["10.0.0.0/8"])
    assert check_target("http://10.0.0.1/", networks).host == "10.0.0.1"
    for url in METADATA:
        with pytest.raises(InvalidValue):
            check_target(url, networks)


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "10.0.0.1/8", "localhost", "10.0.0.0-10.0.0.9", "fd00::/129"])
def test_what_is_no_network_is_refused_by_name(text):
    with pytest.raises(InvalidValue, match="webhook_allow"):
        parse_networks([text])


def test_every_address_of_the_lists_of_public_resolvers_is_public():
    for text in ("1.1.1.1", "8.8.4.4", "9.9.9.9", "2606:4700:4700::1111", "2001:4860:4860::8888", "2620:fe::fe"):
        assert is_public(ip_address(text)), text


def test_a_scheme_is_judged_before_the_host():
    with pytest.raises(InvalidValue, match="scheme 'file'"):
        parse_url("file://127.0.0.1/etc/passwd")
