declare const htm: { bind(make: any): (strings: TemplateStringsArray, ...values: any[]) => any };
export default htm;
