#include "shapes.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DefaultDtype.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "arguments.h"

namespace simdevice {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

// Many meta kernels are written in Python and take a millisecond, so shapes are kept, by all that
// they hang on. It is written as text; False: something that has no text here.
class Signature {
 public:
  bool Add(const IValue& value) {
    if (value.isNone() || value.isDevice()) return Put('n', 0);
    if (value.isInt()) return Put('i', value.toInt());
    if (value.isBool()) return Put('b', value.toBool());
    if (value.isDouble()) return PutDouble(value.toDouble());
    if (value.isString()) return PutString(value.toStringRef());
    if (value.isTensor()) return AddTensor(value.toTensor());
    if (value.isIntList()) return AddList(value.toIntVector());
    if (value.isTensorList()) return AddTensors(value.toTensorVector());
    if (value.isOptionalTensorList()) {
      Put('o', static_cast<int64_t>(value.toOptionalTensorList().size()));
      for (const std::optional<Tensor> tensor : value.toOptionalTensorList()) {
        if (!AddTensor(tensor ? *tensor : Tensor())) return false;
      }
      return true;
    }
    return false;
  }
  bool PutString(const std::string& string) {
    Put('s', static_cast<int64_t>(string.size()));
    text_ += string;
    return true;
  }
  bool Put(char what, int64_t number) {
    text_ += what;
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return true;
  }
  const std::string& text() const { return text_; }

 private:
  bool PutDouble(double number) {
    text_ += 'd';
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return true;
  }
  bool AddList(const std::vector<int64_t>& numbers) {
    Put('l', static_cast<int64_t>(numbers.size()));
    for (int64_t number : numbers) Put('i', number);
    return true;
  }
  bool AddTensors(const std::vector<Tensor>& tensors) {
    Put('v', static_cast<int64_t>(tensors.size()));
    for (const Tensor& tensor : tensors) {
      if (!AddTensor(tensor)) return false;
    }
    return true;
  }
  bool AddTensor(const Tensor& tensor) {
    if (!tensor.defined()) return Put('u', 0);
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (tensor.is_cpu() && !is_number) return false;  // its value may matter
    Put(is_number ? 'w' : 't', static_cast<int64_t>(tensor.scalar_type()));
    AddList(tensor.sizes().vec());
    return AddList(tensor.strides().vec());
  }

  std::string text_;
};

constexpr size_t kMost = 20000;
std::mutex g_shapes_mutex;  // guards the map
auto& g_shapes = *new std::unordered_map<std::string, std::shared_ptr<const Shapes>>();

std::shared_ptr<const Shapes> RunMeta(const c10::OperatorHandle& op, const Stack& arguments) {
  auto shapes = std::make_shared<Shapes>();
  // CPU scalars stay what they are: type promotion treats them unlike other operands.
  shapes->arguments = OnDevice(arguments, at::kMeta, [](const Tensor& tensor) -> Tensor {
    if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
    return Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(),
                                                 tensor.scalar_type()));
  });
  shapes->results = shapes->arguments;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &shapes->results);
  } catch (const std::exception&) {
    return nullptr;
  }
  return shapes;
}

}  // namespace

std::shared_ptr<const Shapes> FindShapes(const c10::OperatorHandle& op, const Stack& arguments) {
  Signature signature;
  signature.PutString(toString(op.operator_name()));
  signature.Put('f', static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  for (const IValue& argument : arguments) {
    if (!signature.Add(argument)) return RunMeta(op, arguments);
  }
  {
    std::lock_guard<std::mutex> lock(g_shapes_mutex);
    auto found = g_shapes.find(signature.text());
    if (found != g_shapes.end()) return found->second;
  }
  auto shapes = RunMeta(op, arguments);
  if (shapes != nullptr) {
    std::lock_guard<std::mutex> lock(g_shapes_mutex);
    if (g_shapes.size() >= kMost) g_shapes.clear();
    g_shapes[signature.text()] = shapes;
  }
  return shapes;
}

}  // namespace simdevice
