"""Serves metrics.txt over HTTP for the collector, for as long as anybody asks."""

import http.server
import sys


class Server(http.server.HTTPServer):
    allow_reuse_address = False
    timeout = 25
    idle = False

    def handle_timeout(self):
        self.idle = True


server = Server(("0.0.0.0", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
while not server.idle:
    server.handle_request()
