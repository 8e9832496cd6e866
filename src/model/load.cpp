#include "src/model/load_internal.h"

namespace sluice {

std::size_t MatrixRef::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return std::size_t{cols} / info.block_size * info.block_bytes;
}

MatrixRef MatrixRef::row_range(std::uint32_t first, std::uint32_t count) const {
  return MatrixRef{type, data + row_bytes() * first, count, cols};
}

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const Architecture& arch : architectures()) names.emplace_back(arch.name);
  return names;
}

Result<Model> load_model(const GgufFile& file, std::uint32_t context) {
  SLUICE_ASSIGN_OR_RETURN(const std::string_view name, file.get_string("general.architecture"));
  for (const Architecture& arch : architectures()) {
    if (arch.name != name) continue;
    Model model;
    SLUICE_ASSIGN_OR_RETURN(model.spec, model_internal::read_hyperparameters(file, arch));
    SLUICE_RETURN_IF_ERROR(model_internal::read_ropes(file, arch, context, model.spec));
    SLUICE_ASSIGN_OR_RETURN(model.weights, model_internal::find_weights(file, arch, model.spec));
    model.weights.mapped = file.is_mapped();
    return model;
  }
  std::string known;
  for (const std::string& each : supported_architectures()) {
    known += (known.empty() ? "" : ", ") + each;
  }
  return bad_input("{}: architecture '{}' is not supported; supported are {}", file.name(), name,
                   known);
}

}  // namespace sluice
