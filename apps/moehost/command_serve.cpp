// moehost serve: loads the model, prints where it lies, and answers over HTTP until Ctrl-C.
#include <iostream>
#include <mutex>

#include "apps/moehost/commands.h"
#include "apps/moehost/config_options.h"
#include "apps/moehost/http_server.h"
#include "apps/moehost/interrupt.h"
#include "apps/moehost/load.h"
#include "apps/moehost/version.h"
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
  std::cerr << version_line() << "\n";
  // Ctrl-C stops loading, or drains a server that answers.
  std::atomic<bool> cancel{false};
  std::mutex mutex;
  HttpServer* answering = nullptr;
  bool interrupted = false;
  const InterruptWatch watch([&] {
    const std::lock_guard lock(mutex);
    interrupted = true;
    if (!answering) {
      cancel = true;
    } else {
      std::cerr << "ending: requests under way are finished, Ctrl-C again stops at once\n";
      answering->drain();
    }
  });
  MOEHOST_ASSIGN(const auto server, HttpServer::listen(config));
  std::cerr << "listening on " << server->address() << "  (GET /health answers; the model is being loaded)\n";
  LoadView view{.full = true, .cancel = &cancel};
  view.on_progress = [&server](double fraction) { server->set_progress(fraction); };
  MOEHOST_ASSIGN(const auto engine, load_engine(line, config, view));
  server->serve(*engine, cancel);
  std::cerr << "ready: " << server->address() << "  (POST /generate, GET /health, /ready, /v1/models)\n";
  {
    const std::lock_guard lock(mutex);
    answering = server.get();
    if (interrupted) server->drain();
  }
  server->wait();
  const std::lock_guard lock(mutex);
  answering = nullptr;
  return {};
}

}  // namespace

Command serve_command() {
  const std::vector<OptionSpec> own = {
      {"insecure-no-auth", 0, "", "allow an address that other machines can reach: there are no keys in this version"}};
  return {"serve", "[MODEL]", "Loads the model, prints where it lies, and answers over HTTP.",
          0,       1,         own + address_options() + config_options() + load_options(),
          &serve};
}

}  // namespace moehost
