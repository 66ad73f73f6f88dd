// A page as text, as a typed tool in JavaScript (QuickJS backend of jco). The host allows or refuses each address.
import { fetch } from "stockade:tool/http@0.1.0";

export function get(url) {
  const response = fetch({ method: "GET", url, headers: [["accept", "text/*"]], body: undefined });
  if (response.status >= 400) throw `${url} answered ${response.status}`;
  if (response.status >= 300) throw `${url} is now at ${(response.headers.find(([n]) => n === "location") ?? [])[1]}`;
  return response.body;
}
