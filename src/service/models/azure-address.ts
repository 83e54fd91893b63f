/** Where Azure's own servers are, as `@ai-sdk/azure` knows them. */
const AZURE_HOST = /\.(openai|services\.ai|cognitiveservices)\.azure\.com$/;

/** A dated API version, whose paths name the deployment. */
const DATED = /^\d{4}-\d{2}-\d{2}/;

/**
 * The options of `createAzure` for an endpoint. The portal shows `https://NAME.openai.azure.com`, the address of a
 * project, or a whole "target URI"; of any of them, the path is `/openai`, and below it `/v1`, or
 * `/deployments/NAME` for a dated version. On other hosts, such as a gateway, the endpoint stays as it is.
 */
export function azureAddress(endpoint: string, apiVersion?: string) {
  const { origin, hostname, pathname } = new URL(endpoint);
  const path = pathname.replace(/\/+$/, '');
  const version = apiVersion === undefined ? '/v1' : '';
  const onAzure = `${path.replace(/\/openai(\/.*)?$/, '')}/openai${version}`;
  return {
    baseURL: origin + (AZURE_HOST.test(hostname) ? onAzure : path),
    ...(apiVersion !== undefined && { apiVersion }),
    useDeploymentBasedUrls: DATED.test(apiVersion ?? ''),
  };
}
