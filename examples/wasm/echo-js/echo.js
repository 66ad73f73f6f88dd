// The Echo tool of the llama.cpp agent (wit/llama-cpp-tool) in JavaScript.
export function getMetadata() {
  return {
    name: "Echo",
    description: "Echoes back the text that it is given",
    version: "0.1.0",
    params: [{ name: "value", description: "The text to echo back", type: "string", required: true }],
    usage: [{ user: "Please echo back 'hello'", assistent: "USE_TOOL: Echo, value=hello" }],
  };
}

export function execute(params) {
  const found = params.find(([name]) => name === "value");
  if (found === undefined) return { success: false, data: "", error: "Missing parameter: value" };
  return { success: true, data: found[1], error: undefined };
}

export function run() {}
