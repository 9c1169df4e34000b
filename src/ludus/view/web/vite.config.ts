import { defineConfig } from "vite";
import { digest } from "./sources.js";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app.[ext]", inlineDynamicImports: true },
    },
  },
  plugins: [
    {
      name: "sources-digest",
      generateBundle() {
        this.emitFile({ type: "asset", fileName: "sources.txt", source: `${digest(import.meta.dirname)}\n` });
      },
    },
  ],
});
