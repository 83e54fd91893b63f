import vue from '@vitejs/plugin-vue';
import { defineConfig, type ProxyOptions } from 'vite';

const relay: ProxyOptions = {
  target: 'http://localhost:3000',
  changeOrigin: true,
  // Without this, a stream that breaks stays open for the page.
  configure(proxy) {
    proxy.on('proxyRes', (answer, _request, response) => answer.on('error', () => response.destroy()));
  },
};

export default defineConfig({
  plugins: [vue()],
  server: { proxy: { '/auth': relay, '/client': relay, '/generic': relay } },
});
