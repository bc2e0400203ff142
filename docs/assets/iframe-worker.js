// Search in a page that was opened from disk. Browsers refuse workers of file: pages, so this one runs the worker's
// script in a hidden frame, whose globals `postMessage` and `importScripts` are what the script finds in a worker.
// The theme's worker looks for a global of the name IFrameWorker in the window above it, and awaits `importScripts`.
if (location.protocol === "file:") {
  const load = (frame, url) =>
    new Promise((resolve, reject) => {
      const script = frame.document.createElement("script")
      script.src = new URL(url, document.baseURI).href
      script.onload = resolve
      script.onerror = () => reject(new Error(`${url} cannot be loaded`))
      frame.document.head.appendChild(script)
    })

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.element = document.createElement("iframe")
      this.element.hidden = true
      document.documentElement.appendChild(this.element)
      const frame = this.element.contentWindow
      frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      frame.importScripts = async (...urls) => {
        for (const each of urls) await load(frame, each)
      }
      this.ready = load(frame, url)
      this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error, message: error.message })))
    }

    postMessage(data) {
      const frame = this.element.contentWindow
      this.ready.then(() => frame.dispatchEvent(new frame.MessageEvent("message", { data })))
    }

    terminate() {
      this.element.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
