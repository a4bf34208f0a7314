// Listening, accepting within limits, and ending.
#include "apps/moehost/http_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <ctime>
#include <filesystem>
#include <thread>

#include "apps/moehost/http_connection.h"
#include "core/base/log.h"

namespace moehost {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kConnections = 1024, kConnectionsPerAddress = 256;

}  // namespace

struct HttpServer::State {
  explicit State(const Config& used) : config(used), shared{.config = config} {}

  Config config;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  std::string address;
  ServerShared shared;
  std::thread thread;

  Status bind();
  void accept();
  void run();
};

Status HttpServer::State::bind() {
  const ServerConfig& server = config.server;
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(server.host, std::to_string(server.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  const auto refuse = [&](const char* what) {
    return fail(Code::kUnavailable, "cannot listen on ", server.host, ":", server.port, ": ", what, " ",
                error.message());
  };
  if (error || found.empty()) return refuse("unknown host:");
  const tcp::endpoint endpoint = *found.begin();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) return refuse("another program has it (choose another with --port):");
  if (error) return refuse("");
  const auto bound = acceptor.local_endpoint(error);
  const std::string host =
      bound.address().is_v6() ? cat("[", bound.address().to_string(), "]") : bound.address().to_string();
  address = cat("http://", host, ":", bound.port());
  shared.loopback = bound.address().is_loopback();
  shared.model_id = std::filesystem::path(config.model).stem().string();
  return {};
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (!error) {
      error_code unknown;
      const auto peer = socket.remote_endpoint(unknown);
      const auto count = shared.per_address.find(unknown ? "unknown" : peer.address().to_string());
      const size_t same = count == shared.per_address.end() ? 0 : count->second;
      // One too many is closed unheard.
      if (shared.connections.size() < kConnections && same < kConnectionsPerAddress) {
        const auto connection = std::make_shared<Connection>(std::move(socket), shared);
        asio::co_spawn(
            io, [connection] { return connection->run(); }, asio::detached);
      }
    }
    accept();
  });
}

void HttpServer::State::run() {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      // A connection's own trouble (no memory for its body) ends that connection, not the server.
      log::error("server", "a connection failed: ", error.what());
    }
  }
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const Config& config) {
  auto state = std::make_unique<State>(config);
  MOEHOST_RETURN_IF_ERROR(state->bind());
  state->accept();
  state->thread = std::thread([raw = state.get()] { raw->run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() {
  drain();
  wait();
}

const std::string& HttpServer::address() const { return state_->address; }

void HttpServer::set_progress(double fraction) { state_->shared.progress = fraction; }

void HttpServer::serve(Engine& engine, std::atomic<bool>& engine_cancel) {
  auto queue = std::make_shared<std::unique_ptr<GenerationQueue>>(
      std::make_unique<GenerationQueue>(engine, state_->config.server.max_queue, engine_cancel));
  asio::post(state_->io, [this, &engine, queue] {
    state_->shared.queue = std::move(*queue);
    state_->shared.engine = &engine;
    state_->shared.loaded_at = std::time(nullptr);
  });
}

void HttpServer::drain() {
  asio::post(state_->io, [this] {
    state_->shared.draining = true;
    error_code ignored;
    state_->acceptor.close(ignored);
    for (Connection* connection : state_->shared.connections) connection->close_if_idle();
  });
}

void HttpServer::wait() {
  if (state_->thread.joinable()) state_->thread.join();
  state_->shared.queue.reset();
}

bool is_loopback(const std::string& host) {
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  return error ? host == "localhost" : address.is_loopback();
}

}  // namespace moehost
