// Unpacks the data of a page: base64 of gzip of "GCR1", length of the directory (u32), directory (JSON), columns (little-endian, each at a
// multiple of 8 bytes after the directory). src/report/html_columns.cc packs it.

export type Column = Uint8Array | Uint32Array | Int32Array | Float64Array;

export interface Container {
  meta: any; // the directory of the page
  column: <T extends Column>(name: string) => T;
}

function base64(text: string): Uint8Array {
  const known = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  if (known) return known.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function gunzip(bytes: Uint8Array): Promise<ArrayBuffer> {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old (no DecompressionStream): use one of 2023 or newer");
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

export async function unpack(text: string): Promise<Container> {
  const buffer = await gunzip(base64(text));
  const magic = new TextDecoder().decode(new Uint8Array(buffer, 0, 4));
  if (magic !== "GCR1") throw new Error("the data in this file is damaged");
  const length = new DataView(buffer).getUint32(4, true);
  const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const columns = new Map<string, Column>();
  for (const { name, type, offset, count } of meta.columns as { name: string; type: string; offset: number; count: number }[]) {
    const at = 8 + length + offset;
    if (type === "u8") columns.set(name, new Uint8Array(buffer, at, count));
    else if (type === "u32") columns.set(name, new Uint32Array(buffer, at, count));
    else if (type === "i32") columns.set(name, new Int32Array(buffer, at, count));
    else columns.set(name, new Float64Array(buffer, at, count));
  }
  const column = <T extends Column>(name: string): T => {
    const found = columns.get(name);
    if (!found) throw new Error(`the data in this file lacks ${name}`);
    return found as T;
  };
  return { meta, column };
}
