"""A small API with an API key, to try the guide with. Listens on 127.0.0.1:8000."""
import http.server
import json

PETS = {1: {"id": 1, "name": "Rex", "kind": "dog"}, 2: {"id": 2, "name": "Tom", "kind": "cat"}}


class Api(http.server.BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("X-Api-Key") != "secret":
            return self.reply(401, {"message": "no key"})
        if self.path.startswith("/pets/"):
            pet = PETS.get(int(self.path.rsplit("/", 1)[1]))
            return self.reply(200, pet) if pet else self.reply(404, {"message": "no such pet"})
        self.reply(200, list(PETS.values()))


http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Api).serve_forever()
