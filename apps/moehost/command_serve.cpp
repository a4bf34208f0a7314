// moehost serve: loads the model, prints where it lies, and answers over HTTP until Ctrl-C.
#include <iostream>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/http_server.h"
#include "apps/moehost/interrupt.h"
#include "apps/moehost/load.h"
#include "core/base/log.h"

namespace moehost {
namespace {

Status check_address(const CommandLine& line, const Config& config) {
  const std::string& host = config.server.host;
  if (is_loopback(host)) return {};
  if (!line.has("insecure-no-auth"))
    return fail(Code::kBadConfig, "server.host is ", host,
                ", which other machines can reach, and this version checks no keys: use 127.0.0.1, or say "
                "--insecure-no-auth if the network is trusted");
  log::warning("server", "listening on ", host, " without authentication: whoever reaches it can use the model");
  return {};
}

Status serve(const CommandLine& line) {
  MOEHOST_ASSIGN(const Config config, read_model_config(line));
  MOEHOST_RETURN_IF_ERROR(check_address(line, config));
  std::atomic<bool> cancel{false}, drain{false};
  std::atomic<HttpServer*> listening{nullptr};
  const InterruptWatch watch([&] {
    drain = true;
    if (HttpServer* server = listening) {
      std::cerr << "ending: requests under way are finished, Ctrl-C again stops at once\n";
      server->drain();
    } else {
      cancel = true;
    }
  });
  MOEHOST_ASSIGN(const auto server, HttpServer::listen(config));
  std::cerr << "listening on " << server->address() << "  (GET /health answers; the model is being loaded)\n";
  LoadView view{.full = true, .cancel = &cancel};
  view.on_progress = [&server](double fraction) { server->set_progress(fraction); };
  auto engine = load_engine(line, config, view);
  if (!engine.ok()) return engine.status();
  server->serve(**engine, cancel);
  listening = server.get();
  // A Ctrl-C between the end of loading and now found no server to drain.
  if (drain) server->drain();
  std::cerr << "ready: " << server->address() << "  (POST /generate, GET /health, /ready, /v1/models)\n";
  server->wait();
  listening = nullptr;
  return {};
}

}  // namespace

Command serve_command() {
  const std::vector<OptionSpec> own = {
      {"insecure-no-auth", 0, "", "allow an address that other machines can reach: there are no keys in this version"}};
  return {"serve", "[MODEL]", "Loads the model, prints where it lies, and answers over HTTP.", 0, 1,
          own + address_options() + config_options() + load_options(), &serve};
}

}  // namespace moehost
