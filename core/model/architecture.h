// The known architectures: GGUF name -> the function that builds the Program. Floor 3.
#pragma once
#include "core/model/builder.h"

namespace moehost {

// Reads the header and builds the Program; no weight is read. The file must outlive the Program.
// kBadModel: an unknown architecture (names the known ones), a key or tensor that is missing or does not fit.
Result<Program> build_program(const GgufFile& file);

// The commonest router: softmax over all experts, the best K, weights divided by their sum.
mh_route_params softmax_router(const HyperParameters& h);

// One a file, in the file of that name.
Result<Program> build_llama(ProgramBuilder& b, const HyperParameters& h);  // llama.cpp of this folder: dense, Mixtral
Result<Program> build_qwen3moe(ProgramBuilder& b, const HyperParameters& h);   // Qwen3-MoE
Result<Program> build_deepseek2(ProgramBuilder& b, const HyperParameters& h);  // DeepSeek V2, V3, R1 and their like

}  // namespace moehost
